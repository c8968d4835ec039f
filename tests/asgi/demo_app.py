"""The models of `streamcodec serve --demo` as an application."""

from streamcodec.asgi import App
from streamcodec.service import Service, demo_models

app = App(Service(demo_models()))
