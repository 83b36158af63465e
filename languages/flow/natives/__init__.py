"""Call providers that consist of effects of the stage, so that they can be replayed, parked and timed out."""
