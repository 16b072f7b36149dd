"""What every policy is and has: decisions, ages of reports, analyzers, public draws."""
