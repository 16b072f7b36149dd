"""People read from CSV and Parquet files."""
