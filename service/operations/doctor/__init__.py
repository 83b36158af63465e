"""The doctor: checks of a deployment, by area. Each reports a finding and a remedy."""
