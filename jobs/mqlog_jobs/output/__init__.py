"""What commands and jobs print and write: tables, lines, numbers in words, whole files."""
