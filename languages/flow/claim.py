"""The conformance claim: which profiles of the specification this implementation satisfies (page *Conformance*)."""

PROFILES = "https://mwl.dev/v0.1/conformance/"

CLAIM: tuple[str, ...] = (
    f"{PROFILES}core",
    f"{PROFILES}expressions/cel",
    f"{PROFILES}expressions/cel/strings",
    f"{PROFILES}expressions/cel/lists",
    f"{PROFILES}expressions/cel/sets",
    f"{PROFILES}expressions/cel/encoders",
    f"{PROFILES}expressions/cel/math",
)
"""The URIs of the profiles, compared character for character."""
