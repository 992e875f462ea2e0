"""Vocabulary, tables and identity of activity graphs; knows no engine."""
