"""The core of Privateer: wire format, privacy, privatizers and policies. Imports nothing by itself."""
