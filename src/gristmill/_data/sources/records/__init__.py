"""Sources over files of records: ArrayRecord, TFRecord, tar, JSON Lines, LitData, image folders."""
