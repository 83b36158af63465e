"""Call providers of the flow language that a worker carries out."""
