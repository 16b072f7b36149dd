"""Files of people: CSV and Parquet, read with errors that name row and column and never carry a value."""
