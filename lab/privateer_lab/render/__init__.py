"""Rendering of results, policies and plans as sentences, tables and pictures, for terminals and pages."""
