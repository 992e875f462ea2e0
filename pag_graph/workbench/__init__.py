"""The workbench: a run explored in a browser, served from this machine by `pag serve`.

`library` knows the stores, `lanes` what a window looks like at some width, `answers` what an analysis says, `guard`
who may ask, `app` the addresses, `server` the process; `static` is the page itself.
"""
