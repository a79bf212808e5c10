// Holds a precompiled header.
