"""The admin API of a run: health, progress, samples of rows, metrics. Imported only if the settings ask for it."""
