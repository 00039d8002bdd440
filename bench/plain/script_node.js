// The work of the script in node, over JSON lines: reads them from standard input, writes them to standard output.
"use strict";
const lines = require("readline").createInterface({ input: process.stdin });
let out = [];
lines.on("line", (line) => {
  const row = shape(JSON.parse(line));
  if (row !== null) out.push(JSON.stringify(row));
  if (out.length === 1000) {
    process.stdout.write(out.join("\n") + "\n");
    out = [];
  }
});
lines.on("close", () => process.stdout.write(out.join("\n") + "\n"));

function shape(row) {
  if (row.quantity < 5) return null;
  const total = Math.round(row.amount * row.quantity * 100) / 100;
  const domain = row.email.split("@")[1].toLowerCase();
  return { id: row.id, name: row.name.toUpperCase(), domain, total, city: row.city.slice(0, 3) };
}
