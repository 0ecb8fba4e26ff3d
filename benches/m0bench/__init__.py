"""The benchmark harness of m0serve: starts servers, loads them, measures them, writes artifacts, renders pages.

Standard library only, Python 3.11 or newer. One module per noun:

| module | owns |
| --- | --- |
| catalogue.py | the applications and the arms (a server's command line), as data |
| suites.py | the suites (which arms meet which cases), as data |
| environment.py | interpreters, the peers' virtual environments, tools that have to be built or installed, the machine's facts |
| proc.py | readings from /proc: CPU, memory, sockets, wake-ups |
| servers.py | one server from start to stop |
| load.py | load generators and what they print |
| measure.py | a suite's run: rounds, alternation, parity, rows |
| parts.py | the suite `parts`: the crate's criterion benches as rows |
| artifacts.py | the artifact's schema: write, read, check, newest |
| figures.py | values taken out of artifacts by expression, and the number spans in prose |
| charts.py, pages.py | SVG and Markdown made from artifacts; the check for stale ones |
| bars.py | the bars of the issues, as data over artifacts |
| gate.py | the regression gate |
| probes.py | probes with a control that has to fail (ci/probe) |
| cli.py | the command lines of ci/bench and ci/probe |
"""
