"""Where frames come from: one file per source, chosen by URI scheme."""
