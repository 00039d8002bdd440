"""The JavaScript that is loaded into a sandbox before the script: reading columns, casting values, `console`.

It keeps the built-in functions that it needs, so that a script that replaces them harms only itself. `casting.py`
generates calls of these functions.
"""

from __future__ import annotations

CUT = 1000
"""Longest line of `console.log`, and longest value in a message, in characters."""
LOG_LINES = 20
"""Lines of `console.log` that are kept per call."""
OUTPUT_LIMIT = "streamling: output"
"""Message of the exception of a call that returns too much."""

PRELUDE = (
    r"""
(function (state) {
"use strict";
const {apply} = Reflect, {isArray} = Array, {stringify} = JSON, {floor, trunc, abs, round} = Math;
const {keys, defineProperty, preventExtensions, hasOwn} = Object, Inf = Infinity;
const AnyArray = Object.getPrototypeOf(Int8Array);
const uncurry = f => (self, ...rest) => apply(f, self, rest);
const TA = AnyArray.prototype, D = Date, Bytes = Uint8Array, Buf = ArrayBuffer, Big = BigInt;
const F64 = Float64Array, I32 = Int32Array, B64 = BigInt64Array, U64 = BigUint64Array, Str = String, Num = Number;
const Internal = InternalError, MapOf = Map, Err = Error, P = Promise;
const sliceArray = uncurry(Array.prototype.slice), join = uncurry(Array.prototype.join);
const split = uncurry(String.prototype.split), substring = uncurry(String.prototype.substring);
const toLower = uncurry(String.prototype.toLowerCase), trim = uncurry(String.prototype.trim);
const padEnd = uncurry(String.prototype.padEnd), repeat = uncurry(String.prototype.repeat);
const isWellFormed = uncurry(String.prototype.isWellFormed), toWellFormed = uncurry(String.prototype.toWellFormed);
const put = uncurry(TA.set), view = uncurry(TA.subarray), fill = uncurry(TA.fill);
const exec = uncurry(RegExp.prototype.exec);
const forEachOf = uncurry(Map.prototype.forEach), timeOf = uncurry(Date.prototype.getTime);
const setDay = uncurry(Date.prototype.setUTCFullYear), dayOf = uncurry(Date.prototype.getUTCDate);
const toISO = uncurry(Date.prototype.toISOString), utc = Date.UTC, parse = parseInt;
const digitsOf = uncurry(BigInt.prototype.toString), toFixed = uncurry(Number.prototype.toFixed);
const SAFE = Num.MAX_SAFE_INTEGER, SAFE_BIG = Big(SAFE), MOST = 9223372036854775807n, LEAST = -9223372036854775808n;
preventExtensions(Object.prototype);
state[3] = ~state[3];

// Random numbers: the same for the same rows of the same epoch.
let ra = 0, rb = 0, rc = 0, rd = 1;
function seed(a, b) { ra = a | 0; rb = b | 0; rc = 0x9e3779b9 | 0; rd = 1; for (let i = 0; i < 12; i++) next(); }
function next() {
  const t = (((ra + rb) | 0) + rd) | 0;
  rd = (rd + 1) | 0; ra = rb ^ (rb >>> 9); rb = (rc + (rc << 3)) | 0; rc = ((rc << 21) | (rc >>> 11)) + t | 0;
  return t >>> 0;
}
defineProperty(Math, "random", {
  value: function random() { return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992; },
  writable: true, configurable: true, enumerable: false,
});

// console
let lines = [], lost = 0;
function shown(v) {
  if (typeof v === "string") return v;
  if (typeof v === "bigint") return digitsOf(v) + "n";
  if (v instanceof Err) return Str(v);
  if (typeof v === "object" && v !== null) { try { return json(v); } catch (e) { return "[object]"; } }
  return Str(v);
}
function print(level, values) {
  if (lines.length >= LOG_LINES) { lost++; return; }
  let text = "";
  for (let i = 0; i < values.length && text.length < CUT; i++) text += (i ? " " : "") + shown(values[i]);
  lines[lines.length] = [level, cut(text)];
}
const Console = {};
for (const [name, level] of [["log", 0], ["info", 0], ["debug", 0], ["trace", 0], ["warn", 1], ["error", 1]])
  Console[name] = (...values) => print(level, values);
globalThis.console = Console;

// Reading columns
let header, at, buffer, base, texts, textAt;
function begin(buf, strings) {
  buffer = buf; header = new I32(buf); base = header[0]; at = 1; texts = strings; textAt = 0;
}
function int() { return header[at++]; }
function patch(values) {
  let count = int(), offset = int();
  if (count) {
    values = isArray(values) ? values : sliceArray(values);
    const where = new I32(buffer, base + offset, count);
    for (let i = 0; i < count; i++) values[where[i]] = null;
  }
  return values;
}
function numbers() {
  const form = int(), count = int(), offset = int();
  let values = new (form & 1 ? F64 : I32)(buffer, base + offset, count);
  const bigs = int(), whereAt = int(), bigAt = int();
  if (bigs) {
    values = sliceArray(values);
    const where = new I32(buffer, base + whereAt, bigs), big = new (form & 2 ? U64 : B64)(buffer, base + bigAt, bigs);
    for (let i = 0; i < bigs; i++) values[where[i]] = big[i];
  }
  return patch(values);
}
function codes() { const count = int(); return new Bytes(buffer, base + int(), count); }
function offsets() { const count = int(); return new I32(buffer, base + int(), count); }
function strings() {
  const plain = int(), count = int(), offset = int(), text = texts[textAt++];
  let values;
  if (plain) values = count ? split(text, "\0") : [];
  else {
    const ends = new I32(buffer, base + offset, count);
    values = [];
    for (let i = 0, start = 0; i < count; i++) { values[i] = substring(text, start, ends[i]); start = ends[i]; }
  }
  return patch(values);
}
function binaries() {
  const ends = offsets(), data = codes(), values = [];
  for (let i = 0, start = 0; i < ends.length; i++) {
    values[i] = new Bytes(view(data, start, ends[i]));
    start = ends[i];
  }
  return patch(values);
}
function own(object, key, value) {
  if (key === "__proto__") defineProperty(object, key, {value, writable: true, enumerable: true, configurable: true});
  else object[key] = value;
}

// Writing values
let nulls = 0;
class Mismatch extends Err {}
function cut(text) { return text.length > CUT ? substring(text, 0, CUT) + "..." : text; }
function json(v) {
  try { return stringify(v); }
  catch (e) { return stringify(v, (k, x) => typeof x === "bigint" ? digitsOf(x) : x); }
}
function kindOf(v) {
  if (v === null) return "null";
  if (isArray(v)) return "an array";
  if (typeof v === "object") return v instanceof P ? "a promise" : "an object";
  if (typeof v === "string") return "the text " + cut(stringify(v));
  if (typeof v === "undefined") return "undefined";
  return "the " + typeof v + " " + cut(Str(v));
}
function misfit(v, column, type, why) {
  return new Mismatch("column '" + column + "': " + kindOf(v) + " is not a valid " + type + (why ? ": " + why : ""));
}
function wrong(v) {
  if (typeof v === "object" && v !== null && v instanceof P)
    return new Mismatch("the function returned a promise; it must be synchronous");
  const right = "; it must return an object, an array of objects, or null";
  return new Mismatch("the function returned " + kindOf(v) + right);
}
function none(mask, k, lost) { mask[k] = 1; if (lost) nulls++; return 0; }
const NUMERIC = /^\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*$/, WHOLE = /^\s*([+-]?)(\d+)\s*$/;
function toNumber(v) {
  switch (typeof v) {
    case "number": return v;
    case "boolean": return v ? 1 : 0;
    case "bigint": return Num(v);
    case "string":
      if (exec(NUMERIC, v) !== null) return Num(v);
      switch (toLower(trim(v))) {
        case "nan": return NaN;
        case "infinity": case "+infinity": case "inf": return Inf;
        case "-infinity": case "-inf": return -Inf;
      }
  }
  return null;
}
function toFloat(v, mask, k) {
  if (v === null || v === undefined) return none(mask, k, false);
  const number = toNumber(v);
  return number === null ? none(mask, k, true) : number;
}
function toInt(v, least, most, mask, k) {
  if (v === null || v === undefined) return none(mask, k, false);
  let number = toNumber(v);
  if (number === null) return none(mask, k, true);
  number = trunc(number);
  return number >= least && number <= most ? number : none(mask, k, true);
}
function toLong(v, least, most, mask, k, wide) {
  if (v === null || v === undefined) return none(mask, k, false);
  if (typeof v === "string") {
    const whole = exec(WHOLE, v);
    v = whole !== null ? Big(whole[1] === "-" ? "-" + whole[2] : whole[2]) : toNumber(v);
  } else if (typeof v !== "bigint") v = toNumber(v);
  if (v === null || v !== v || v === Inf || v === -Inf) return none(mask, k, true);
  if (typeof v === "number") {
    v = trunc(v);
    if (v >= -SAFE && v <= SAFE) return v < 0 && least === 0n ? none(mask, k, true) : v;
    v = Big(v);
  }
  if (v < least || v > most) return none(mask, k, true);
  if (v >= -SAFE_BIG && v <= SAFE_BIG) return Num(v);
  if (wide.values === null) wide.values = new wide.type(mask.length);
  wide.values[k] = v;
  return NaN;
}
function toBool(v) {
  switch (typeof v) {
    case "boolean": return v ? 1 : 0;
    case "number": return v !== v ? (nulls++, 2) : v === 0 ? 0 : 1;
    case "bigint": return v === 0n ? 0 : 1;
    case "string":
      switch (toLower(trim(v))) { case "true": case "1": return 1; case "false": case "0": return 0; }
  }
  if (v !== null && v !== undefined) nulls++;
  return 2;
}
function toText(v, mask, k, column) {
  switch (typeof v) {
    case "string": return v;
    case "number": case "boolean": return Str(v);
    case "bigint": return digitsOf(v);
    case "undefined": none(mask, k, false); return "";
    case "object":
      if (v === null) { none(mask, k, false); return ""; }
      if (v instanceof D) return toISO(v);
      const text = json(v);
      if (typeof text === "string") return text;
  }
  throw misfit(v, column, "string");
}
const PARTS = /^\s*([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?\s*$/, ZEROS = /^0+/, TAIL = /0+$/;
function toDecimal(v, precision, scale, mask, k, column, type) {
  if (v === null || v === undefined) { none(mask, k, false); return ""; }
  const text = typeof v === "string" ? v : typeof v === "bigint" ? digitsOf(v) : typeof v === "number" ? Str(v)
    : typeof v === "boolean" ? (v ? "1" : "0") : null;
  const parts = text === null ? null : exec(PARTS, text);
  if (parts === null || !(parts[2] || parts[3])) throw misfit(v, column, type);
  const fraction = parts[3] || "", shift = Num(parts[4] || "0");
  if (abs(shift) > 70000) throw misfit(v, column, type, "its exponent is too large");
  let digits = parts[2] + fraction, point = parts[2].length + shift;
  if (point < 0) { digits = repeat("0", -point) + digits; point = 0; }
  digits = padEnd(digits, point, "0");
  let whole = substring(digits, 0, point), rest = substring(digits, point);
  const zeros = exec(ZEROS, whole), tail = exec(TAIL, rest);
  if (zeros !== null) whole = substring(whole, zeros[0].length);
  if (tail !== null) rest = substring(rest, 0, rest.length - tail[0].length);
  if (rest.length > scale)
    throw misfit(v, column, type, "it has more than " + scale + " digits after the point; round it");
  if (whole.length > precision - scale)
    throw misfit(v, column, type, "it has more than " + (precision - scale) + " digits before the point");
  const sign = parts[1] === "-" && (whole || rest) ? "-" : "";
  return sign + (whole || "0") + (rest ? "." + rest : "");
}
function inside(text, least, most, v, column, type) {
  if (text !== "" && (Big(text) < least || Big(text) > most)) throw misfit(v, column, type);
  return text;
}
const DAY = /^\s*([+-]?\d{4,6})-(\d\d)-(\d\d)/, HOURS = /(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?/;
const ZONE = /(Z|z|[+-]\d\d(?::?\d\d)?)?/;
const MOMENT = new RegExp(DAY.source + "(?:[T ]" + HOURS.source + "\\s*" + ZONE.source + ")?\\s*$");
const CLOCK = /^\s*(-?)(\d{1,9}):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s*$/;
let micros = 0;
function parts(v) {
  let ms = floor(v);
  micros = round((v - ms) * 1000);
  if (micros === 1000) { micros = 0; ms++; }
  return ms;
}
function fractionOf(digits) {
  const six = parse(substring(padEnd(digits || "", 6, "0"), 0, 6), 10);
  micros = six % 1000;
  return floor(six / 1000);
}
function toMoment(v, mask, k, column, type) {
  if (v === null || v === undefined) { micros = 0; return none(mask, k, false); }
  let ms = NaN;
  if (typeof v === "number") ms = parts(v);
  else if (typeof v === "bigint") { ms = Num(v); micros = 0; }
  else if (typeof v === "object" && v instanceof D) ms = parts(timeOf(v));
  else if (typeof v === "string") {
    const m = exec(MOMENT, v);
    if (m !== null) {
      const second = m[6] === undefined ? 0 : +m[6], date = new D(0);
      setDay(date, +m[1], m[2] - 1, +m[3]);
      ms = timeOf(date);
      const day = dayOf(date);
      if (m[2] < 1 || m[2] > 12 || m[3] < 1 || day !== +m[3] || m[4] > 23 || m[5] > 59 || second > 59) ms = NaN;
      else if (m[4] !== undefined) {
        ms += ((+m[4] * 60 + +m[5]) * 60 + second) * 1000 + fractionOf(m[7]);
        if (m[8] !== undefined && toLower(m[8]) !== "z") {
          const minutes = m[8].length > 3 ? +substring(m[8], m[8].length - 2) : 0;
          ms -= (m[8][0] === "-" ? -1 : 1) * (+substring(m[8], 1, 3) * 60 + minutes) * 60000;
        }
      } else micros = 0;
    }
  }
  if (!(ms >= -62135596800000 && ms <= 253402300800000)) throw misfit(v, column, type);
  return ms;
}
function toSpan(v, most, mask, k, column, type) {
  if (v === null || v === undefined) { micros = 0; return none(mask, k, false); }
  let ms = NaN;
  if (typeof v === "number") ms = parts(v);
  else if (typeof v === "string") {
    const m = exec(CLOCK, v);
    if (m !== null && m[3] < 60 && (m[4] === undefined || m[4] < 60)) {
      const whole = ((+m[2] * 60 + +m[3]) * 60 + (m[4] === undefined ? 0 : +m[4])) * 1000 + fractionOf(m[5]);
      ms = m[1] === "-" ? parts(-(whole + micros / 1000)) : whole;
    }
  }
  if (!(most ? ms >= 0 && ms < most : abs(ms) <= 9.2e15)) throw misfit(v, column, type);
  return ms;
}
const HEX = /^(?:0x|\\x)?((?:[0-9a-fA-F]{2})*)$/;
function toBytes(v, length, column, type) {
  let bytes = null;
  if (v === null || v === undefined) return null;
  if (v instanceof Bytes) bytes = v;
  else if (v instanceof Buf) bytes = new Bytes(v);
  else if (typeof v === "string") {
    const hex = exec(HEX, v);
    if (hex !== null) {
      bytes = new Bytes(hex[1].length / 2);
      for (let i = 0; i < bytes.length; i++) bytes[i] = parse(substring(hex[1], 2 * i, 2 * i + 2), 16);
    }
  }
  if (bytes === null) throw misfit(v, column, type, "use a Uint8Array or hex text");
  if (length >= 0 && bytes.length !== length) throw misfit(v, column, type, "it has " + bytes.length + " bytes");
  return bytes;
}
function toList(v, column, type) {
  if (isArray(v)) return v;
  if (typeof v === "object" && v instanceof AnyArray) return sliceArray(v);
  throw misfit(v, column, type, "use an array");
}
function toEntries(v, column, type) {
  if (isArray(v)) {
    for (let i = 0; i < v.length; i++)
      if (!isArray(v[i]) || v[i].length !== 2) throw misfit(v, column, type, "use an object, or pairs");
    return v;
  }
  const entries = [];
  if (typeof v !== "object") throw misfit(v, column, type, "use an object");
  if (v instanceof MapOf) forEachOf(v, (value, key) => { entries[entries.length] = [key, value]; });
  else { const names = keys(v); for (let i = 0; i < names.length; i++) entries[i] = [names[i], v[names[i]]]; }
  return entries;
}
function toObject(v, column, type) {
  if (typeof v !== "object" || isArray(v)) throw misfit(v, column, type, "use an object");
  return v;
}
function enlarge(values, size) { const larger = new values.constructor(size); put(larger, values); return larger; }

// Results
const out = {buffer: null, text: "", extra: ""};
let errors = [], extras = [];
class OutputLimit extends Err {}
function beyond() { return new OutputLimit("OUTPUT_LIMIT"); }
function isFatal(e) {
  return e instanceof OutputLimit || (e instanceof Internal && e.message === "out of memory");
}
function fail(i, e) {
  let name = "", message = "", stack = "";
  try {
    if (e instanceof Mismatch) message = e.message;
    else if (e instanceof Err) { name = Str(e.name); message = Str(e.message); stack = Str(e.stack); }
    else message = shown(e);
  } catch (other) { message = "an error that cannot be shown"; }
  errors[errors.length] = [i, name, cut(message), substring(stack, 0, 4 * CUT)];
}
function extraKeys(o, known) {
  const names = keys(o);
  for (let i = 0; i < names.length && extras.length < 20; i++)
    if (!hasOwn(known, names[i])) extras[extras.length] = names[i];
}
function reset(a, b) { errors = []; extras = []; lines = []; lost = 0; nulls = 0; seed(a, b); }
function textOf(slots) {
  const all = [];
  for (let i = 0; i < slots.length; i++) if (slots[i].length) all[all.length] = join(slots[i], "\0");
  const text = join(all, "\0");
  return isWellFormed(text) ? text : toWellFormed(text);
}
function lengthsOf(slots) {
  let total = 0, n = 0;
  for (let i = 0; i < slots.length; i++) total += slots[i].length;
  const lengths = new I32(total);
  for (let i = 0; i < slots.length; i++) for (let j = 0; j < slots[i].length; j++) lengths[n++] = slots[i][j].length;
  return lengths.buffer;
}
function rowBeyond(slots, sources, limit) {
  let size = 0;
  for (let i = 0; i < slots.length; i++) {
    if (slots[i].length !== sources.count) continue;
    for (let j = 0; j < slots[i].length; j++) { size += slots[i][j].length; if (size > limit) return sources.rows[j]; }
  }
  return 0;
}
function pack(counts, slots, textSlots, sources, limit) {
  let size = 0;
  for (let i = 0; i < slots.length; i++) size += (slots[i].byteLength + 7) & ~7;
  const text = textOf(textSlots);
  if (size + text.length > limit) { state[0] = rowBeyond(textSlots, sources, limit - size); throw beyond(); }
  const extra = errors.length || lines.length || lost || extras.length
    ? stringify({errors, lines, lost, extras}) : "";
  const head = 4 * (counts.length + 2), start = (head + 7) & ~7, result = new Buf(start + size), H = new I32(result);
  H[0] = nulls; H[1] = extra === "" ? 0 : 1;
  for (let i = 0; i < counts.length; i++) H[2 + i] = counts[i];
  for (let i = 0, offset = start; i < slots.length; i++) {
    put(new slots[i].constructor(result, offset, slots[i].length), slots[i]);
    offset += (slots[i].byteLength + 7) & ~7;
  }
  out.text = text; out.extra = isWellFormed(extra) ? extra : toWellFormed(extra);
  return result;
}
const tools = {state, isArray, begin, int, numbers, codes, offsets, strings, binaries, own, toFloat, toInt, toLong,
  toBool, toText, toDecimal, inside, toMoment, toSpan, toBytes, toList, toEntries, toObject, enlarge, wrong, fail,
  isFatal, beyond, none,
  extraKeys, reset, pack, lengthsOf, view, fill, put, hasOwn, out, P, F64, I32, Bytes, B64, U64, MOST, LEAST,
  Int16Array, micros: () => micros};
return tools;
})
""".replace("LOG_LINES", str(LOG_LINES))
    .replace("CUT", str(CUT))
    .replace("OUTPUT_LIMIT", OUTPUT_LIMIT)
)
