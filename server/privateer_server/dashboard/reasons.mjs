// Why reports are refused, in words. A test compares the names with those that the services have.

export const REASONS = {
  "malformed-report": "What came was no sealed report.",
  "wrong-size": "The sealed bytes are not as long as the round's reports.",
  "wrong-key": "The report is sealed to the key of another round.",
  "wrong-digest": "The report was made for another publication of the same version.",
  "round-closed": "It came after its round had closed. That is normal: a person chose before, and reported after.",
  "round-unknown": "It was made for a version that was never published.",
  "decryption-failed": "It cannot be decrypted. Many of them mean that a device is broken, or that somebody sends junk.",
  "out-of-range": "It opened, but no device makes such a report.",
  "duplicate-report": "It was counted before: a device sends again what it got no answer to.",
  "wrong-endpoint": "It went to the server instead of the shuffler, or the reverse.",
  "sender-refused": "Several people's reports came together, and no trusted sender had signed them.",
  "batch-refused": "A batch had a wrong signature, size, round or shuffler.",
  "not-found": "There was no such experiment.",
  deleted: "The experiment was deleted.",
  "too-large": "There was more in it than the endpoint takes.",
  unavailable: "The service had no room for it then. The device sends it again.",
};

/** What a reason means; unknown ones come from a newer server. */
export const describeReason = (reason) => REASONS[reason] ?? "This page does not know the reason; docs/problems.md may.";
