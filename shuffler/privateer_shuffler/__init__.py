"""The shuffler: it holds sealed reports until a batch is full, permutes and forwards them, and forgets them."""
