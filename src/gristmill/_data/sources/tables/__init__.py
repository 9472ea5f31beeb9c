"""Sources over files of tables: Parquet, Arrow, CSV, Hugging Face folders."""
