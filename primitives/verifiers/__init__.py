"""Verifiers: acceptance rules over one verified draft tree. They never change what was proposed."""
