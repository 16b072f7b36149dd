"""The shuffler: it holds sealed reports until a batch is full, permutes and forwards the batch, and erases it."""
