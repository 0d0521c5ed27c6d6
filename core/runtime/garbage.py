"""The collector of cycles looks at every object that lives, and nothing else runs meanwhile: most of a second for some tens of thousands of
pods, again and again while they are listed. What a server's lists leave behind stays, and has no cycles: it need not be looked at."""

import gc


def spare_what_lives() -> None:
    """What lives now is left out of all collections to come; it still goes when nobody refers to it any more.

    Cheap, whatever there is. Of what lives now what later hangs together in a cycle stays for ever: to be called a bounded number of
    times in the life of a process. What has no use any more and is young is collected before.
    """
    gc.collect(1)
    gc.freeze()
