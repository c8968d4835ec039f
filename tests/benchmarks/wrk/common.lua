-- What both scripts share: the request of a file given as argument, and the result as one line of JSON.

wrk.method = "POST"

function read_all(path)
   local file = assert(io.open(path, "rb"))
   local text = file:read("*a")
   file:close()
   return text
end

function done(summary, latency, _)
   local errors = summary.errors
   io.write(string.format(
      '\n{"requests": %d, "seconds": %f, "p50": %f, "p99": %f, "errors": %d}\n',
      summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6,
      errors.connect + errors.read + errors.write + errors.status + errors.timeout
   ))
end
