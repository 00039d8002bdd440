"""From text to frozen objects: the pipeline file and the application settings. No Spark, no clients."""
