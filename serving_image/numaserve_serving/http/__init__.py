"""Routes, schemas and errors of the two ports."""
