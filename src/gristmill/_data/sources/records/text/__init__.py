"""Sources over text files: lines, paragraphs and JSON."""
