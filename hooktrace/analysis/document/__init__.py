"""What is shown, as data, and how it looks in a terminal and on a page.

    facts --a view: report, compare, tune--> nodes (tree.py) --terminal.py--> rich
                                                             --output.py--> one self-contained page

A view says what there is to say, in which order, with numbers as text; a renderer knows nothing of
runs, and a terminal has no pictures.
"""
