-- The requests of a file, at random, over and over: wrk -s requests.lua URL -- FILE
-- Before each request, FILE has a line with its length. In a request, sixteen 7s stand for a number that is new each
-- time, after a restart of wrk as well. A single request without a number is asked for once; then wrk goes on without Lua.

local MARK = string.rep("7", 16)
local number = os.time() * 1000000

local function split(text)
   local parts, start = {}, 1
   while true do
      local first, last = text:find(MARK, start, true)
      parts[#parts + 1] = text:sub(start, first and first - 1)
      if not first then
         return parts
      end
      start = last + 1
   end
end

function init(arguments)
   local file = assert(io.open(arguments[1], "rb"))
   local requests = {}
   for length in file:lines() do
      requests[#requests + 1] = split(file:read(tonumber(length)))
   end
   file:close()
   if #requests == 1 and #requests[1] == 1 then
      function wrk.format()
         return requests[1][1]
      end
   else
      function request()
         number = number + 1
         return table.concat(requests[math.random(#requests)], string.format("%016d", number))
      end
   end
end

function done(summary, latency, _)
   local errors = summary.errors
   io.write(string.format(
      '\n{"requests": %d, "seconds": %f, "p50": %f, "p99": %f, "errors": %d, "refused": %d}\n',
      summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6,
      errors.connect + errors.read + errors.write + errors.timeout, errors.status
   ))
end
