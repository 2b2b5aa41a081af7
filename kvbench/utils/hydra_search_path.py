"""Plug-ins' files in the search path of every configuration that Hydra composes."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from kvbench.utils.plugins import plugins


class Folders(SearchPathPlugin):
    """The conf/ of every plug-in, after kvbench's own."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for plugin in plugins():
            search_path.append(provider=plugin.distribution, path=f"file://{plugin.conf}")


def look_into_plugins() -> None:
    """Make Hydra use Folders whenever it composes; a second call changes nothing."""
    Plugins.instance().register(Folders)
