"""What the docs say is what the code does: links, names, options, generated tables, commands."""
