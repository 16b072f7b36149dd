"""The shuffler: holds sealed reports until a batch is full, permutes, forwards, forgets. It cannot open a report."""
