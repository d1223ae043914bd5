"""Whom items go to: registered handlers, and what a call of one may do."""
