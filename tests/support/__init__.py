"""What tests share: servers, ways to run pipelines, doubles, sample data."""
