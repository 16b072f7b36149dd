"""The issuer: gives each device its share of upload tokens, and cannot tell where one is spent."""
