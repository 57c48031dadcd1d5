"""Rows that several processes hold, beside gathering them: what is sent, and how long it takes."""
