from tests.support.lane_server import shared_servers as shared_servers
