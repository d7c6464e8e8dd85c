"""Tools that tests share: exact enumeration, injected faults, recorded scenes. No tests in here."""
