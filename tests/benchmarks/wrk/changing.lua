-- A new trace id in the head and a new id in the JSON with each request: wrk -s changing.lua URL -- REQUEST
-- REQUEST is a file that holds the whole request, with one run of 16 x in the head and one in the JSON, which stand for
-- the number of the request. So the lengths stay the same.

dofile(debug.getinfo(1, "S").source:match("@(.*/)") .. "common.lua")

local number = 0

function init(arguments)
   local text = read_all(arguments[1])
   local mark = string.rep("x", 16)
   local first = assert(text:find(mark, 1, true))
   local second = assert(text:find(mark, first + 16, true))
   local head, middle, rest = text:sub(1, first - 1), text:sub(first + 16, second - 1), text:sub(second + 16)
   function request()
      number = number + 1
      local id = string.format("%016x", number)
      return head .. id .. middle .. id .. rest
   end
end
