"""The core of Privateer: wire format, privacy, mechanisms and policies. Imports nothing by itself."""
