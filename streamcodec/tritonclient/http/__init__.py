"""Http: the HTTP client; `http.aio` has the asynchronous one, and `http.auth` a plugin for Basic authentication."""
