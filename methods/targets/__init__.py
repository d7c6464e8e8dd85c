"""Target models behind one protocol: stock Hugging Face models, and an exact toy for tests.

A target forwards trees and commits paths. Which tokens are proposed or kept is not its business.
"""
