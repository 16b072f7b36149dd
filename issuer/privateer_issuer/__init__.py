"""The issuer: gives each device its share of upload tokens, which it cannot link to their use."""
