"""Sinks of what standing queries and alert rules say: each reads what is committed, behind a cursor of its own.

A sink that fails, is slow or is not there holds nobody up, and loses nothing: it goes on from its cursor.
"""
