"""The five papers as published, and their figures and tables made again, a folder each. Nothing imports this."""
