"""Runs as one HTML page that opens anywhere: tables, figures, and single answers token by token.

`page.write_report` puts it together. Numbers come from what a run wrote (`benchmarks.results`);
what needs single steps is counted from its rows and left out, with a word, where they were not
kept. Nothing is measured here, and the page asks no other machine for anything.
"""
