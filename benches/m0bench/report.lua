-- Runs inside wrk: the request from the environment, the result as one line of JSON.
-- It defines no request() and no response(): wrk then makes the request once, in C, and this costs nothing a request.

wrk.method = os.getenv("M0_BENCH_METHOD") or "GET"
local size = tonumber(os.getenv("M0_BENCH_SEND") or "0")
if size > 0 then
  wrk.body = string.rep("0123456789abcdef", math.ceil(size / 16)):sub(1, size)
  wrk.headers["Content-Type"] = "application/octet-stream"
end

done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'M0BENCH {"requests":%d,"duration_us":%d,"bytes":%d,"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d,' ..
    '"p50_us":%.0f,"p75_us":%.0f,"p90_us":%.0f,"p99_us":%.0f,"p999_us":%.0f,"max_us":%.0f,"mean_us":%.1f}\n',
    summary.requests, summary.duration, summary.bytes,
    errors.connect, errors.read, errors.write, errors.status, errors.timeout,
    latency:percentile(50), latency:percentile(75), latency:percentile(90), latency:percentile(99),
    latency:percentile(99.9), latency.max, latency.mean))
end
