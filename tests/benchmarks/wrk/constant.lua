-- The same request over and over: wrk -s constant.lua URL -- REQUEST
-- REQUEST is a file that holds the whole request. wrk asks for it once and then goes on without Lua.

dofile(debug.getinfo(1, "S").source:match("@(.*/)") .. "common.lua")

function init(arguments)
   local text = read_all(arguments[1])
   function wrk.format()
      return text
   end
end
