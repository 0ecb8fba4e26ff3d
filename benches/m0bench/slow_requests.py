"""Keeps requests to a slow path in flight: `slow_requests.py PORT PATH COUNT`.

Each of COUNT connections sends its next request when the answer to the last is there, until standard input closes.
Prints "in flight" once all have sent their first, and at the end one line of JSON with what became of them.
"""

import http.client
import json
import sys
import threading


def main(port, path, count):
    lock = threading.Lock()
    report = {"finished": 0, "failed": 0, "why": ""}
    stop = threading.Event()
    sent = threading.Semaphore(0)

    def client():
        first = True
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while first or not stop.is_set():
            try:
                connection.request("GET", path)
                if first:
                    first = False
                    sent.release()
                response = connection.getresponse()
                response.read()
                why = "" if response.status == 200 else f"status {response.status}"
            except (OSError, http.client.HTTPException) as error:
                # A server may close a kept connection between two requests; the next request opens a new one.
                connection.close()
                why = f"{type(error).__name__}: {error}"
                if first:
                    first = False
                    sent.release()
            with lock:
                if why:
                    report["failed"] += 1
                    report["why"] = why
                else:
                    report["finished"] += 1
            if why:
                stop.wait(0.05)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(count)]
    for thread in threads:
        thread.start()
    for _ in threads:
        sent.acquire()
    print("in flight", flush=True)
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
