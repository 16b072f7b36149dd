"""The way of reports into the store: opened, counted, and answered once they are durable."""
